"""Levers: the catalogue, one evaluator each, the ranking, the ledger of dead ends and the prior-art sweep."""

from wavewise.levers.catalogue import Catalogue as Catalogue
from wavewise.levers.catalogue import LeverSpec as LeverSpec
from wavewise.levers.catalogue import load_catalogue as load_catalogue
from wavewise.levers.known import Known as Known
from wavewise.levers.ledger import Ledger as Ledger
from wavewise.levers.ledger import load_ledger as load_ledger
from wavewise.levers.ranking import rank as rank
