"""The pipeline, wired once: logs and a deployment in, a Report out.

options    how a log is read and replayed
gathering  logs to BlockTrace, with everything that was counted on the way
figures    BlockTrace to figures: hits, lengths, curve, coverage of what is unknown
pipeline   `analyse`: both, and the rule for an incomplete audit

No stage prints or exits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefixaudit.lazy_names import lazy_names

if TYPE_CHECKING:
    from prefixaudit.analysis.gathering import Progress as Progress
    from prefixaudit.analysis.options import AnalysisOptions as AnalysisOptions
    from prefixaudit.analysis.pipeline import analyse as analyse

__all__ = ["AnalysisOptions", "Progress", "analyse"]

__getattr__ = lazy_names(
    __name__, {"AnalysisOptions": "options", "Progress": "gathering", "analyse": "pipeline"}
)
