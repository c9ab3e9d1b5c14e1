"""AG-UI, as a frontend and as a backend: the dialect `ag-ui`."""

from adapters.ag_ui.codec import AGUI, dialect

__all__ = ["AGUI", "dialect"]
