-- Schema 3: sums over the rows of phi, so that an update need not read all of them.

CREATE TABLE gram (                    -- a cache: for one version, sums over the training nodes of a class
    map TEXT NOT NULL,                 -- the feature map
    class INTEGER NOT NULL REFERENCES classes (class) ON DELETE CASCADE,
    data BLOB NOT NULL,                -- float64, the upper triangle of the sum of outer products of rows, by rows
    checksum INTEGER NOT NULL,
    PRIMARY KEY (map, class)
) STRICT;
