// SPDX-License-Identifier: Apache-2.0
/// @file
/// Sub-clusters as an integer program for COIN-OR's CBC: proofs where a complete search is too
/// slow.
#pragma once

#include <cohort/packing/subclusters/subcluster.hpp>

#include <cstdint>
#include <limits>

namespace cohort::packing {

/// The solver's result.
struct cbc_answer {
  enum class status : std::uint8_t {
    optimal,     ///< `best` is optimal, within `gap`.
    feasible,    ///< Time limit; `best` keeps all caps.
    infeasible,  ///< Proven.
    unknown,     ///< Time limit, without a solution.
  };
  status what = status::unknown;
  subcluster_assignment best{};
  double objective = std::numeric_limits<double>::infinity();  ///< Objective of `best`.
  double bound = 0;  ///< Lower bound of all assignments; near 0 on large problems.
};

/// An answer within this relative gap counts as optimal.
inline constexpr double cbc_gap = 1e-6;

/// Solves the whole problem: minimise R + w S over binary x(i, j) with each model in one
/// sub-cluster, R and S at least every deviation of rate and static memory, all caps and the budget
/// of moves. Without a current assignment sub-clusters are alike, and the i-th largest model is in
/// one of the first i. For small problems: with hundreds of models the linear bound is weak. Memory
/// and time grow with models · count. One thread. Blocks for about `limit_s` at most.
/// @throws config_error If the problem is out of range, or `limit_s` is not above 0.
[[nodiscard]] cbc_answer solve_with_cbc(const subcluster_problem& p, double limit_s);

}  // namespace cohort::packing
