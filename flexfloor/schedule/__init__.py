"""What is generated where and when: pure decisions, the same on every rank."""
