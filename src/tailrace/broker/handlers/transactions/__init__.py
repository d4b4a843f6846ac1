"""Requests of transactional producers, of brokers about their transactions, and of people who look at them."""
