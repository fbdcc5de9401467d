"""Channels, credentials and messages between the SDK and the services."""
