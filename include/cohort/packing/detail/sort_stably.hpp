// SPDX-License-Identifier: Apache-2.0
/// @file
/// A stable sort of vectors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace cohort::packing::detail {

/// Like std::ranges::stable_sort, which libstdc++ implements with a function that it deprecates.
template <class T, class Less = std::ranges::less, class Projection = std::identity>
void sort_stably(std::vector<T>& v, Less less = {}, Projection projection = {}) {
  std::vector<std::size_t> order(v.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    if (less(std::invoke(projection, v[a]), std::invoke(projection, v[b]))) return true;
    if (less(std::invoke(projection, v[b]), std::invoke(projection, v[a]))) return false;
    return a < b;
  });
  std::vector<T> sorted;
  sorted.reserve(v.size());
  for (const std::size_t i : order) sorted.push_back(std::move(v[i]));
  v.swap(sorted);
}

}  // namespace cohort::packing::detail
