"""The colour of each scheme, the same in all plots."""

from __future__ import annotations

NONE_COLOR = "#9ca3af"
#: From the fastest to the cheapest; barrier snapshots are the controller's own.
SCHEME_COLORS = {
    "active-replication": "#7f2704",
    "active-standby": "#d95f02",
    "hot-standby": "#fdae6b",
    "cold-standby": "#9ecae1",
    "deployed": "#4292c6",
    "passive-replication": "#08519c",
    "snapshot": "#7570b3",
}
