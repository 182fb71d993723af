-- A learner's database, schema 1.
--
-- Rows carry the version that added them and, where they can be replaced, the version that removed them. A row belongs
-- to version v if added <= v and removed is NULL or greater than v. Blobs hold little-endian int32 or float32.
-- checksum is a CRC-32 of the row's other columns but removed.

CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,               -- JSON
    checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE versions (
    version INTEGER PRIMARY KEY,
    time TEXT NOT NULL,                -- UTC
    nodes INTEGER NOT NULL,            -- alive
    next_node INTEGER NOT NULL,        -- number of the next new node
    edges INTEGER NOT NULL,            -- directed; an undirected edge counts twice
    labeled INTEGER NOT NULL,
    remembered INTEGER NOT NULL,
    classes INTEGER NOT NULL,
    updates INTEGER NOT NULL,
    state TEXT NOT NULL,               -- JSON: features and learner
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE current (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL REFERENCES versions (version),
    newest INTEGER NOT NULL,           -- largest version number ever used
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE classes (
    class INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    added INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE updates (
    number INTEGER NOT NULL,           -- from 0
    added INTEGER NOT NULL,
    removed INTEGER,
    name TEXT NOT NULL,
    record TEXT NOT NULL,              -- JSON: counts, classes, scores, drift
    checksum INTEGER NOT NULL,
    PRIMARY KEY (number, added)
) STRICT, WITHOUT ROWID;

CREATE TABLE nodes (
    node INTEGER PRIMARY KEY,          -- in order of arrival
    id TEXT NOT NULL,                  -- the user's own
    added INTEGER NOT NULL,
    removed INTEGER,
    checksum INTEGER NOT NULL,
    columns BLOB,                      -- int32 indices of nonzero features; NULL if the features are dense
    features BLOB NOT NULL             -- float32
) STRICT;
CREATE INDEX nodes_by_id ON nodes (id);
CREATE INDEX nodes_removed ON nodes (removed) WHERE removed IS NOT NULL;

CREATE TABLE labels (
    node INTEGER PRIMARY KEY REFERENCES nodes (node) ON DELETE CASCADE,
    class INTEGER NOT NULL REFERENCES classes (class),
    split INTEGER NOT NULL,            -- 0 train, 1 val, 2 test
    number INTEGER NOT NULL,           -- the update that brought the label
    added INTEGER NOT NULL,
    removed INTEGER,
    checksum INTEGER NOT NULL
) STRICT;
CREATE INDEX labels_by_update ON labels (number, split);
CREATE INDEX labels_removed ON labels (removed) WHERE removed IS NOT NULL;

CREATE TABLE adjacency (
    node INTEGER NOT NULL REFERENCES nodes (node) ON DELETE CASCADE,
    added INTEGER NOT NULL,
    removed INTEGER,
    checksum INTEGER NOT NULL,
    neighbors BLOB NOT NULL,           -- int32, ascending: nodes with an edge into this one
    PRIMARY KEY (node, added)
) STRICT, WITHOUT ROWID;
CREATE INDEX adjacency_removed ON adjacency (removed) WHERE removed IS NOT NULL;

CREATE TABLE remembered (
    version INTEGER NOT NULL REFERENCES versions (version) ON DELETE CASCADE,
    place INTEGER NOT NULL,            -- oldest first
    task INTEGER NOT NULL,
    node INTEGER NOT NULL REFERENCES nodes (node) ON DELETE CASCADE,
    class INTEGER NOT NULL REFERENCES classes (class),
    score REAL,                        -- the selector's
    rank INTEGER NOT NULL,             -- in its task and class, from 1
    checksum INTEGER NOT NULL,
    PRIMARY KEY (version, place)
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
    version INTEGER NOT NULL REFERENCES versions (version) ON DELETE CASCADE,
    kind TEXT NOT NULL,                -- weights: safetensors
    data BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (version, kind)
) STRICT;

CREATE TABLE progress (                -- the update that is being learned
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,          -- the version that it will be
    staged TEXT NOT NULL,              -- JSON
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE checkpoint (              -- where its training stands
    one INTEGER PRIMARY KEY CHECK (one = 1) REFERENCES progress (one) ON DELETE CASCADE,
    state TEXT NOT NULL,               -- JSON
    tensors BLOB NOT NULL,             -- safetensors
    checksum INTEGER NOT NULL
) STRICT;

CREATE TABLE log (
    time TEXT NOT NULL,
    action TEXT NOT NULL,
    details TEXT NOT NULL              -- JSON
) STRICT;

CREATE VIEW current_nodes AS
    SELECT nodes.node, nodes.id, classes.name AS label,
           CASE labels.split WHEN 0 THEN 'train' WHEN 1 THEN 'val' WHEN 2 THEN 'test' END AS split,
           labels.number + 1 AS label_update
    FROM current
    JOIN nodes ON nodes.added <= current.version AND (nodes.removed IS NULL OR nodes.removed > current.version)
    LEFT JOIN labels ON labels.node = nodes.node AND labels.added <= current.version
    LEFT JOIN classes ON classes.class = labels.class;

CREATE VIEW current_remembered AS
    SELECT nodes.id, classes.name AS label, remembered.task, remembered.score, remembered.rank
    FROM current
    JOIN remembered ON remembered.version = current.version
    JOIN nodes ON nodes.node = remembered.node
    JOIN classes ON classes.class = remembered.class
    ORDER BY remembered.place;
