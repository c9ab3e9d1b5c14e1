"""AG-UI, as a frontend and as a backend: the dialect `ag-ui`."""

from bridge.dialects.ag_ui.codec import AGUI, dialect

__all__ = ["AGUI", "dialect"]
