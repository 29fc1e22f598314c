"""The ledger: what was tried, on which platform, with what verdict, kept as TOML files by a team."""

from wavewise.levers.ledger.book import Conflict as Conflict
from wavewise.levers.ledger.book import Ledger as Ledger
from wavewise.levers.ledger.entry import GROUNDS as GROUNDS
from wavewise.levers.ledger.entry import VERDICTS as VERDICTS
from wavewise.levers.ledger.entry import Claim as Claim
from wavewise.levers.ledger.entry import Entry as Entry
from wavewise.levers.ledger.entry import Platform as Platform
from wavewise.levers.ledger.files import add_entry as add_entry
from wavewise.levers.ledger.files import init_ledger as init_ledger
from wavewise.levers.ledger.files import load_ledger as load_ledger
from wavewise.levers.ledger.files import write_entries as write_entries
from wavewise.levers.ledger.setting import Setting as Setting
