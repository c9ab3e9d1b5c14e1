from tests.dialects.acp.helpers import forgotten as forgotten
from tests.dialects.acp.helpers import known_others as known_others
