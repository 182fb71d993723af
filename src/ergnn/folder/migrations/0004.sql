-- Schema 4: weights of edges.

ALTER TABLE adjacency ADD COLUMN weights BLOB;  -- float32, of the edges from these neighbors; NULL if all are 1
