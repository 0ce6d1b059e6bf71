// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tables of named things. A row holds its name, its help and a maker; using a name means visiting
/// its row. So no second list, in an `if` or a `switch`, can lack a name.
#pragma once

#include <cohort/core/assert.hpp>

#include <concepts>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "name_list.hpp"

namespace cohort::registry {

/// The `make` of a row without one.
struct nothing {};

/// The usual kind of row. A table may have its own kind with more fields.
template <class Make = nothing>
struct row {
  std::string_view name;
  std::string_view help;
  Make make{};  ///< A function, or a value, for this name.
  name_parameter parameter{};
};

/// Whether the name has a use.
template <class Row>
concept has_make =
    requires(const Row& r) { r.make; } && !std::same_as<decltype(Row::make), nothing>;

/// Rows of any types. Does not compile if a row has no `make` or no help, or if a name is repeated.
template <class... Rows>
class name_table {
  static_assert((has_make<Rows> && ...), "each row of a table has a make: what its name does");

 public:
  consteval explicit name_table(Rows... rows) : rows_{rows...} {
    const std::string_view names[] = {rows.name...};
    for (std::size_t i = 0; i < sizeof...(Rows); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (names[i] == names[j]) throw "two rows have one name";
      }
    }
    if ((rows.help.empty() || ...)) throw "a row has no help";
  }

  /// Calls `f(row)` with the row of this index, which must exist. All results have one type.
  template <std::size_t I = 0, class F>
  constexpr decltype(auto) visit(std::size_t which, F&& f) const {
    if constexpr (I + 1 < sizeof...(Rows)) {
      if (which != I) return visit<I + 1>(which, std::forward<F>(f));
    }
    COHORT_ASSERT(which == I);
    return std::forward<F>(f)(std::get<I>(rows_));
  }

  /// Index of the row that holds a `Make`. Does not compile without one.
  template <class Make>
  [[nodiscard]] static consteval std::size_t row_of() {
    const bool is_it[] = {std::same_as<std::remove_cv_t<decltype(Rows::make)>, Make>...};
    std::size_t i = 0;
    while (!is_it[i]) ++i;
    return i;
  }

  /// Only the names, for callers that do not use the makers.
  [[nodiscard]] name_list list() const {
    return std::apply(
        [](const auto&... r) { return name_list{{listed_name{r.name, r.help, r.parameter}...}}; },
        rows_);
  }

 private:
  std::tuple<Rows...> rows_;
};

}  // namespace cohort::registry
