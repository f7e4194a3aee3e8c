"""Pictures of a posterior, in matplotlib."""

from .decision import plot_decision
from .draws import plot_posterior, plot_trace
from .features import plot_features
from .graph import plot_graph
from .mixtures import plot_mixture_decision
from .partitions import plot_coclustering, plot_num_clusters
from .regbayes import plot_regbayes
from .scores import plot_calibration, plot_concentration, plot_kernels, plot_objective
from .topics import plot_documents, plot_topics
