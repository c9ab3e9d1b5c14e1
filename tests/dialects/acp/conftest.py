from tests.dialects.acp.helpers import forgotten as forgotten
