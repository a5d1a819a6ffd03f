"""Events in one order for all readers, written and read without waiting."""

import pickle
import threading

import torch.distributed as dist

from flexfloor.overlap.event_log import EventLog


def test_every_reader_gets_every_event_once_in_the_order_of_writing():
    store = dist.HashStore()
    writer, other, reader = (EventLog(store, "log") for _ in range(3))
    assert reader.read() == []
    writer.write({"a": 1})
    other.write((2, "b"))
    assert reader.read() == [{"a": 1}, (2, "b")]
    writer.write(3)
    assert reader.read() == [3] and reader.read() == []
    assert EventLog(store, "log").read() == [{"a": 1}, (2, "b"), 3]


def test_logs_of_other_names_are_apart():
    store = dist.HashStore()
    EventLog(store, "one").write(1)
    assert EventLog(store, "two").read() == []


def test_an_event_that_has_a_number_and_is_not_written_yet_holds_back_those_behind_it():
    store = dist.HashStore()
    reader, late, log = EventLog(store, "log"), dist.PrefixStore("log", store), EventLog(store, "log")
    assert late.add("count", 1) == 1
    log.write("second")
    assert reader.read() == []
    late.set("event/1", pickle.dumps("first"))
    assert reader.read() == ["first", "second"]


def test_what_many_write_at_once_is_read_in_one_order():
    store = dist.HashStore()
    logs = [EventLog(store, "log") for _ in range(4)]

    def write(writer):
        for number in range(50):
            logs[writer].write((writer, number))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = EventLog(store, "log").read()
    assert found == EventLog(store, "log").read() and len(found) == 200
    for writer in range(4):
        assert [number for who, number in found if who == writer] == list(range(50))


def test_a_cleared_log_leaves_no_event_in_the_store():
    store = dist.HashStore()
    log = EventLog(store, "log")
    before = store.num_keys()
    for number in range(5):
        log.write(number)
    log.clear()
    # The count of events stays: it is a number.
    assert store.num_keys() == before + 1
