"""Ranges on the circle against a search through all gaps, however the rows are cut."""

import numpy as np
import pytest

from daskgp.models import place_ranges


def searched(lon):
    """Width of the shortest arc that has all longitudes, by trying each as its western end."""
    return min(np.mod(lon - west, 360.0).max() for west in lon)


@pytest.mark.parametrize("seed", range(20))
def test_the_range_is_the_shortest_arc(seed):
    rng = np.random.default_rng(seed)
    west, width = rng.uniform(-180, 180), rng.uniform(1, 300)
    lon = np.mod(rng.uniform(west, west + width, 200) + 180, 360) - 180
    lat = rng.uniform(-90, 90, 200)
    parts = [
        place_ranges.local(*part) for part in np.stack([lon, lat]).reshape(2, 4, 50).swapaxes(0, 1)
    ]
    ends = parts[0]
    for part in parts[1:]:
        ends = place_ranges.combine(part, ends)
    np.testing.assert_array_equal(ends, place_ranges.local(lon, lat))
    (low, high), latitudes = place_ranges.of(ends)
    assert latitudes == [lat.min(), lat.max()]
    whole = high - low == 360
    assert whole or high - low == pytest.approx(searched(lon), abs=1e-9)
    assert -180 <= low < high <= 360
    assert all(low - 1e-9 <= x <= high + 1e-9 or low - 1e-9 <= x + 360 <= high + 1e-9 for x in lon)
    again = place_ranges.of(place_ranges.along([low, high], latitudes))
    assert again == ([pytest.approx(low), pytest.approx(high)], pytest.approx(latitudes))


def test_a_whole_circle_starts_where_its_longitudes_do():
    lat = np.zeros(36)
    for start, wanted in ((-180, [-180, 180]), (0, [0, 360]), (-90, [-180, 180])):
        lon = start + 10.0 * np.arange(36)
        assert place_ranges.of(place_ranges.local(lon, lat))[0] == wanted


def test_one_longitude_is_a_range_without_width():
    for lon in (7.25, -180.0, 0.0, 359.5, -1e-300):
        ends = place_ranges.local(np.array([lon]), np.array([3.0]))
        assert place_ranges.of(ends) == ([lon, lon], [3.0, 3.0])
