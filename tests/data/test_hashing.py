import torch

from ergnn.data.hashing import hashes


def test_hashes_are_splitmix64s_published_numbers() -> None:
    """Vigna's reference code started at 1234567."""
    wanted = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    assert [int(h) % 2**64 for h in hashes(1234567, torch.arange(1, 6))] == wanted


def test_hashes_do_not_depend_on_blocks_and_leave_the_counter() -> None:
    counter = torch.arange(1000)
    whole = hashes(5, counter)
    assert torch.equal(counter, torch.arange(1000))
    assert torch.equal(whole, torch.cat([hashes(5, part) for part in counter.split(37)]))
