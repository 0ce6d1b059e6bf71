// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory whose cells say whose token they hold: it executes copy plans and shows what is where.
#pragma once

#include <cohort/kv/batch/copy_plan.hpp>
#include <cohort/kv/batch/decode_batch.hpp>

#include <cstdint>
#include <map>
#include <vector>

namespace cohort::test {

/// What a column of a slot holds: a token of a sequence, or nothing that may be read.
struct cell {
  std::uint64_t id = 0;
  std::int64_t position = -1;
  friend bool operator==(const cell&, const cell&) = default;
};

/// The batch's cells and the packed ones, by storage.
class tagged_memory {
 public:
  explicit tagged_memory(std::uint32_t columns) : columns_{columns} {}

  std::map<std::uint64_t, std::vector<cell>> packed;

  cell& at(std::uint32_t slot, std::uint32_t column) {
    if (slot >= rows_.size()) rows_.resize(slot + 1, std::vector<cell>(columns_));
    return rows_[slot].at(column);
  }

  /// Makes packed columns with positions 0 to length − 1.
  void prefill(std::uint64_t storage, std::uint64_t id, std::uint32_t length) {
    std::vector<cell>& p = packed[storage];
    p.clear();
    for (std::uint32_t i = 0; i < length; ++i) p.push_back({id, i});
  }

  void run(const kv::copy_plan& plan) {
    std::vector<std::vector<cell>> old;
    if (plan.capacity() != 0) {
      columns_ = plan.capacity();
      old.swap(rows_);
    }
    for (const kv::column_copy& c : plan.copies()) {
      for (std::uint32_t i = 0; i < c.count; ++i) {
        switch (c.kind) {
          case kv::copy_kind::enter:
            at(c.to_slot, c.to_column + i) = packed.at(c.storage).at(c.from_column + i);
            break;
          case kv::copy_kind::leave: {
            std::vector<cell>& p = packed[c.storage];
            if (p.size() <= c.to_column + i) p.resize(c.to_column + i + 1);
            p[c.to_column + i] = at(c.from_slot, c.from_column + i);
            break;
          }
          case kv::copy_kind::shift:
            at(c.to_slot, c.to_column + i) = at(c.from_slot, c.from_column + i);
            break;
          case kv::copy_kind::resize:
            at(c.to_slot, c.to_column + i) = old.at(c.from_slot).at(c.from_column + i);
            break;
        }
      }
    }
  }

  /// A slot's own columns, in order, as the batch tells where they lie.
  std::vector<cell> own(const kv::decode_batch& batch, std::uint32_t slot) {
    std::vector<cell> out;
    batch.for_each_run(slot, [&](kv::column_run r) {
      for (std::uint32_t i = 0; i < r.count; ++i) out.push_back(at(slot, r.first + i));
    });
    return out;
  }

  [[nodiscard]] std::uint32_t columns() const { return columns_; }

 private:
  std::uint32_t columns_;
  std::vector<std::vector<cell>> rows_;
};

}  // namespace cohort::test
