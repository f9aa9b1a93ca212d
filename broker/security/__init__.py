"""Who a client is: listeners, TLS, SASL mechanisms, credentials and principals."""
