from hypothesis import given
from hypothesis import strategies as st

from flexfloor.schedule.static import deal_in_order


@given(st.integers(0, 200), st.integers(1, 17))
def test_deals_each_prompt_once_in_order_and_evenly(num_prompts, num_replicas):
    dealt = deal_in_order(num_prompts, num_replicas)
    assert len(dealt) == num_replicas
    assert [prompt for part in dealt for prompt in part] == list(range(num_prompts))
    sizes = [len(part) for part in dealt]
    assert max(sizes) - min(sizes) <= 1
