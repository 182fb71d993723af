"""A learner's folder as an HTTP service: predictions from memory, updates by one background writer, metrics, a page.

Needs the extra ``serve``: FastAPI, uvicorn, python-multipart and prometheus-client.
"""
