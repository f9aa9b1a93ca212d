"""The messages as data: requests and responses of the APIs, and the coordinators' records, a file a noun."""
