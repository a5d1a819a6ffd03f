"""What the tests patch."""

FLAG = True


def double(x):
    return 2 * x


again = double


class Worker:
    def run(self, x):
        return x + 1

    @staticmethod
    def scale(x):
        return 10 * x

    @classmethod
    def label(cls):
        return cls.__name__


def reads_undefined():
    return undefined_name  # noqa: F821
