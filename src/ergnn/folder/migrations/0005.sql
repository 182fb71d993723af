-- Schema 5: sums over the rows of phi are not stored.

DROP TABLE IF EXISTS gram;
