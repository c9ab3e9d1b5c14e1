"""Conversations: clients and backends are joined that differ in who stores them."""
