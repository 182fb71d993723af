-- Schema 2: the label of a node may be corrected, so a node may have several rows of labels, one per version that
-- changed it.

DROP VIEW current_nodes;
ALTER TABLE labels RENAME TO old_labels;
DROP INDEX labels_by_update;
DROP INDEX labels_removed;

CREATE TABLE labels (
    node INTEGER NOT NULL REFERENCES nodes (node) ON DELETE CASCADE,
    class INTEGER NOT NULL REFERENCES classes (class),
    split INTEGER NOT NULL,            -- 0 train, 1 val, 2 test
    number INTEGER NOT NULL,           -- the update that brought the first label
    added INTEGER NOT NULL,
    removed INTEGER,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (node, added)
) STRICT;
INSERT INTO labels SELECT node, class, split, number, added, removed, checksum FROM old_labels;
DROP TABLE old_labels;
CREATE INDEX labels_by_update ON labels (number, split);
CREATE INDEX labels_removed ON labels (removed) WHERE removed IS NOT NULL;

CREATE VIEW current_nodes AS
    SELECT nodes.node, nodes.id, classes.name AS label,
           CASE labels.split WHEN 0 THEN 'train' WHEN 1 THEN 'val' WHEN 2 THEN 'test' END AS split,
           labels.number + 1 AS label_update
    FROM current
    JOIN nodes ON nodes.added <= current.version AND (nodes.removed IS NULL OR nodes.removed > current.version)
    LEFT JOIN labels ON labels.node = nodes.node AND labels.added <= current.version
        AND (labels.removed IS NULL OR labels.removed > current.version)
    LEFT JOIN classes ON classes.class = labels.class;

CREATE INDEX adjacency_added ON adjacency (added);

CREATE TABLE phi (                     -- a cache: propagated features of training nodes, for one version
    map TEXT NOT NULL,                 -- the feature map
    node INTEGER NOT NULL REFERENCES nodes (node) ON DELETE CASCADE,
    data BLOB NOT NULL,                -- float64 or float32
    checksum INTEGER NOT NULL,
    PRIMARY KEY (map, node)
) STRICT;
CREATE INDEX phi_by_node ON phi (node);

CREATE TABLE row_cache (               -- which version the rows of phi belong to
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    layout TEXT NOT NULL,              -- sketch and precision
    checksum INTEGER NOT NULL
) STRICT;
