"""The papers' tables, run again: the paper's number beside ours, its spread over seeds, and the time.

>>> from regbayes import reproduce
>>> reproduce.names()[:3]
['bmc-fig2', 'bmc-fig3', 'bmc-fig4']
"""

from . import bmc, ilsvm, isvm, m2dpm, topics
from .experiment import Experiment, Options, OtherSettings, run_experiment
from .page import reproduction_page

__all__ = ["EXPERIMENTS", "Experiment", "Options", "OtherSettings", "names", "reproduction_page", "run_experiment"]

EXPERIMENTS: dict[str, Experiment] = {
    "bmc-fig2": bmc.FIG2,
    "bmc-fig3": bmc.FIG3,
    "bmc-fig4": topics.FIG4,
    "bmc-fig5": topics.FIG5,
    "bmc-fig9": topics.FIG9,
    "bmc-table1": bmc.TABLE1,
    "bmc-table2": topics.TABLE2,
    "bmc-table3": bmc.TABLE3,
    "isvm-fig1": isvm.FIG1,
    "isvm-table1": isvm.TABLE1,
    "isvm-table2": isvm.TABLE2,
    "isvm-table3": isvm.TABLE3,
    "m2dpm-table1": m2dpm.TABLE1,
    "m2dpm-table2": m2dpm.TABLE2,
    "m2dpm-table3": m2dpm.TABLE3,
    "m2dpm-table4": m2dpm.TABLE4,
    "m2dpm-table5": m2dpm.TABLE5,
    "regbayes-fig7": ilsvm.FIG7,
    "regbayes-fig8": ilsvm.FIG8,
    "regbayes-fig9": ilsvm.FIG9,
    "regbayes-table1": ilsvm.TABLE1,
    "regbayes-table2": ilsvm.TABLE2,
}


def names() -> list[str]:
    """The experiments' names."""
    return list(EXPERIMENTS)
