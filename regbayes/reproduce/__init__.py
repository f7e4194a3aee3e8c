"""The papers' tables, run again: the paper's number beside ours, its spread over seeds, and the time.

>>> from regbayes import reproduce
>>> reproduce.names()
['bmc-table1', 'isvm-table1', 'isvm-table2', 'm2dpm-table1', 'm2dpm-table2', 'm2dpm-table3', 'm2dpm-table4']
"""

from . import bmc, isvm, m2dpm
from .experiment import Experiment, Options, OtherSettings, run_experiment

__all__ = ["EXPERIMENTS", "Experiment", "Options", "OtherSettings", "names", "run_experiment"]

EXPERIMENTS: dict[str, Experiment] = {
    "bmc-table1": bmc.TABLE1,
    "isvm-table1": isvm.TABLE1,
    "isvm-table2": isvm.TABLE2,
    "m2dpm-table1": m2dpm.TABLE1,
    "m2dpm-table2": m2dpm.TABLE2,
    "m2dpm-table3": m2dpm.TABLE3,
    "m2dpm-table4": m2dpm.TABLE4,
}


def names() -> list[str]:
    """The experiments' names."""
    return list(EXPERIMENTS)
