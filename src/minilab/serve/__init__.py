"""HTTP around the engine: an OpenAI-compatible server, a router proxy, a load client."""
