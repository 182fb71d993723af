"""Graphs of any size with Reddit's shape, made by counting and hashing, and streamed to disk."""

from ergnn.data.reddit_like.files import FILES, GraphFiles, read_files, verify_files, write_files
from ergnn.data.reddit_like.spec import RedditLike

__all__ = ["FILES", "GraphFiles", "RedditLike", "read_files", "verify_files", "write_files"]
