"""Presenters of the results of earlier folders, which know no figures and no pages."""

from __future__ import annotations

from interp.core.presenter import present

present(
    "interp.core.display:Displayed",
    first_line="interp.draw.rows:first_line",
    inline="interp.draw.rows:rows_inline",
    page="interp.draw.rows:rows_page",
    publish="interp.report.publishing:publish",
    vector="interp.report.paper:save_vector",
)
present(
    "interp.core.result:Result",
    differences="interp.core.differences:differences",
    plot="interp.draw.rows:bars_of",
)
present(
    "interp.core.table:HeadTable",
    plot="interp.draw.charts:heatmap",
    report="interp.report.atlas.page:write_report",
    text="interp.report.printed.scores:head_table_text",
)
present("PromptMeans", text="interp.report.printed.means:means_text")
present(
    "interp.model.capture:ActivationCache",
    inline="interp.report.cached_activations:cache_html",
    view="interp.report.cached_activations:view_of_cache",
)
