"""Libraries for programs that are agents themselves: one package for each protocol, built on the protocol's adapter."""
