"""Chat templates: prompts from conversations, and the parts of replies."""
