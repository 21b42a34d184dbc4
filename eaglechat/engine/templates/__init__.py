"""What a chat template makes of a conversation, and what the parts of a reply to it are."""
