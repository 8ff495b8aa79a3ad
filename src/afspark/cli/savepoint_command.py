"""``afspark savepoint``: a savepoint of the query in a checkpoint, whether it runs or not."""

from __future__ import annotations

from afspark.api.savepoints import savepoint_of
from afspark.cli.options import SavepointOptions
from afspark.report.summary import console
from afspark.report.wording import bytes_text


def save(options: SavepointOptions) -> int:
    """Carries out ``options``; the exit status."""
    place, savepoint = savepoint_of(options.checkpoint, options.destination)
    if not options.quiet:
        size = f"{bytes_text(savepoint.bytes)} in {len(savepoint.objects)} objects"
        console().print(f"The query at the end of batch {savepoint.batch}: {size}, in", soft_wrap=True)
        console().print(place, soft_wrap=True, markup=False)
    return 0
