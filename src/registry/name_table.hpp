// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tables of named things. A row holds its name, its help and a maker; to use a name is to
/// visit its row. So there is no second list, in an `if` or a `switch`, that could lack a name.
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

/// The `make` of a row that was written without one.
struct nothing {};

/// A row of the usual kind. A table may have rows of its own that say more.
template <class Make = nothing>
struct row {
  std::string_view name;
  std::string_view help;
  Make make{};  ///< A function, or a value, that this name stands for.
  name_parameter parameter{};
};

/// Whether a name would do something.
template <class Row>
concept has_make =
    requires(const Row& r) { r.make; } && !std::same_as<decltype(Row::make), nothing>;

/// Rows of any types. Does not compile with a row that has no `make` or no help, nor with two of
/// one name.
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

  /// `f(row)` of row number `which`, which must exist. Its results have one type.
  template <std::size_t I = 0, class F>
  constexpr decltype(auto) visit(std::size_t which, F&& f) const {
    if constexpr (I + 1 < sizeof...(Rows)) {
      if (which != I) return visit<I + 1>(which, std::forward<F>(f));
    }
    COHORT_ASSERT(which == I);
    return std::forward<F>(f)(std::get<I>(rows_));
  }

  /// Number of the row that holds a `Make`. Does not compile if none does.
  template <class Make>
  [[nodiscard]] static consteval std::size_t row_of() {
    const bool is_it[] = {std::same_as<std::remove_cv_t<decltype(Rows::make)>, Make>...};
    std::size_t i = 0;
    while (!is_it[i]) ++i;
    return i;
  }

  /// The names alone, for callers that do not use the makers.
  [[nodiscard]] name_list list() const {
    return std::apply(
        [](const auto&... r) { return name_list{{listed_name{r.name, r.help, r.parameter}...}}; },
        rows_);
  }

 private:
  std::tuple<Rows...> rows_;
};

}  // namespace cohort::registry
