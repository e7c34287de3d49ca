"""`morph site build`: all notebooks, figures and documents as web pages that need no server and no network."""
