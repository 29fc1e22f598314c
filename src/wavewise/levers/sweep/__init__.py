"""The prior-art sweep: reads local documents, finds what they say of each lever, drafts ledger entries."""

from wavewise.levers.sweep.documents import Block as Block
from wavewise.levers.sweep.documents import Document as Document
from wavewise.levers.sweep.documents import git_log as git_log
from wavewise.levers.sweep.documents import read_documents as read_documents
from wavewise.levers.sweep.findings import Draft as Draft
from wavewise.levers.sweep.findings import DraftConflict as DraftConflict
from wavewise.levers.sweep.findings import Passage as Passage
from wavewise.levers.sweep.findings import Swept as Swept
from wavewise.levers.sweep.sweep import sweep as sweep
