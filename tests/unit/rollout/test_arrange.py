"""Who computes a prompt, and which slots the sequences of a pass take."""

import torch

from flexfloor.rollout.arrange import share_prompts, take_places
from flexfloor.rollout.kv_cache import KVCache
from flexfloor.rollout.kv_shape import heads_shape
from flexfloor.rollout.live import LiveSequence
from flexfloor.rollout.types import Request
from flexfloor.schedule.slots import Room


def sequence(uid, index=0, *, prompt=2, tokens=0):
    request = Request(uid=uid, response_index=index, prompt_ids=(1,) * prompt, max_new_tokens=9)
    made = LiveSequence.of(request, seed=0)
    for token in range(tokens):
        made.append(token, -1.0)
    return made


def test_new_sequences_copy_a_prompt_and_those_that_yielded_compute_all_of_theirs():
    live = sequence("a", 0, tokens=3)
    again, late = sequence("a", 1, tokens=2), sequence("a", 2)
    first, second, alone = sequence("b", 0), sequence("b", 1), sequence("c", 0, tokens=1)
    prefilling, copying = share_prompts([live], [again, late, first, second, alone], {"a"})
    assert prefilling == [again, first, alone]
    assert copying == [(late, live), (second, first)]


def test_a_sequence_that_goes_on_is_no_source_before_its_prompt_is_computed():
    again, new = sequence("a", 0, tokens=1), sequence("a", 1)
    assert share_prompts([], [again, new], set()) == ([again, new], [])


def test_a_sibling_from_another_rank_is_no_source_without_its_prompts_logits():
    moved, first, second = sequence("a", 0, tokens=3), sequence("a", 1), sequence("a", 2)
    assert share_prompts([moved], [first, second], set()) == ([first], [(second, first)])


def test_in_a_slab_those_that_decode_come_first_and_stay_where_they_can():
    room = Room(sizes=(4, 8), tokens=100)
    shape = heads_shape(num_layers=1, num_groups=1, head_dim=2)
    cache = KVCache(shape=shape, room=room, dtype=torch.float32, device=torch.device("cpu"))
    a, b, c, d = (sequence(uid) for uid in "abcd")
    assert take_places(cache, [], [a, b, c, d], []) == ([], [a, b, c, d])
    for each, tokens in ((a, 3), (b, 1), (c, 1), (d, 1)):
        for token in range(tokens):
            each.append(token, -1.0)
    long, copy = sequence("e", prompt=7), sequence("c", 1)
    # a outgrows its slot, and d, for which there is no fourth slot among those that decode, takes it
    decoding, prefilling = take_places(cache, [a, b, c, d], [long], [copy])
    assert (decoding, prefilling) == ([d, b, c, a], [long])
    found = [(each.place.size_index, each.place.slot) for each in (d, b, c, copy, a, long)]
    assert found == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
