"""Models, the EAGLE-3 session, the loop and its statistics. Knows neither Textual nor the Hub."""
