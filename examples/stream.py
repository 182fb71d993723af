"""Learn Cora task by task, with and without replay, and compare forgetting.

python examples/stream.py [epochs]
"""

import sys

import ergnn


def main(epochs: int = 100) -> None:
    preset = ergnn.make_stream("cora", split="seeded")
    for task in preset.stream:
        print(f"{task.name}: {task.train.numel()} training nodes, {task.test.numel()} test nodes")
    learners = {
        "finetune": ergnn.Learner("gat", "finetune", epochs=epochs, weight_decay=5e-4),
        "replay": ergnn.Learner("gat", "replay", selector="mf*", per_class=1, epochs=epochs, weight_decay=5e-4),
    }
    for name, learner in learners.items():
        matrix = ergnn.evaluate_stream(learner, preset.stream)
        pm, fm, aa = ergnn.performance_mean(matrix), ergnn.forgetting_mean(matrix), ergnn.average_accuracy(matrix)
        print(f"{name:>8}: PM {pm:.1%}  FM {fm:.1%}  AA {aa:.1%}")
    print("stored nodes:", learners["replay"].method.buffer.nodes.tolist())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
