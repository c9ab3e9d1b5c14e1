from bridge.testing import DialectConformance
class TestACP(DialectConformance):
    dialects=["acp"]
