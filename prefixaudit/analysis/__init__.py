"""The pipeline, wired once: logs and a deployment in, a Report out.

gathering  logs to BlockTrace, with everything that was counted on the way
figures    BlockTrace to figures: hits, lengths, curve, coverage of what is unknown
pipeline   `analyse`: both, and the rule for an incomplete audit

No stage prints or exits.
"""

from prefixaudit.analysis.gathering import Progress
from prefixaudit.analysis.pipeline import AnalysisOptions, analyse

__all__ = ["AnalysisOptions", "Progress", "analyse"]
