"""Progress bars without a monitor thread."""

from tqdm import auto


class tqdm(auto.tqdm):
    """tqdm without its monitor thread, which would outlive the bar."""

    monitor_interval = 0
