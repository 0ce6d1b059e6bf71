// SPDX-License-Identifier: Apache-2.0
/// @file
/// The messages between model shards and the rank on separate threads: `exchange`.
#pragma once

#include <cohort/core/assert.hpp>
#include <cohort/core/error.hpp>
#include <cohort/core/ids.hpp>
#include <cohort/core/time.hpp>
#include <cohort/deferred/batch_times.hpp>
#include <cohort/deferred/candidate.hpp>
#include <cohort/deferred/sharded/dirty_set.hpp>
#include <cohort/deferred/sharded/latest_value.hpp>
#include <cohort/deferred/sharded/ring.hpp>
#include <cohort/deferred/view.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cohort::deferred {

/// The answer to a grant.
struct grant_answer {
  std::uint32_t number = 0;  ///< Number of the grant, per model from 1; 0: none yet.
  std::uint32_t size = 0;    ///< Size of the batch; 0: the grant was returned.
  time_point exec_at;        ///< Planned start of the batch.
  duration expected{0};      ///< Expected run time.
  duration work{0};          ///< ℓ(size).
  usual_time usual{};        ///< Usual time of such batches.
};

/// A shard's latest message about a model. It replaces earlier ones: a model has at most one
/// outstanding grant, and its answer stays until there is another.
struct model_word {
  candidate best;
  grant_answer answer{};
  std::uint32_t shard = 0;  ///< The shard that sent it,
  /// and its tenure: a shard counts the models that it takes. So a shard that asks to release a
  /// model is distinguished from earlier ones even if the rank has seen no other message from it.
  std::uint32_t tenure = 0;
  bool is_leaving = false;  ///< The shard asks to release the model.
};

/// A message from the rank to one shard, in order.
struct rank_mail {
  /// A grant, or else the release that the shard has asked for: no grant for the model is on its
  /// way, nor will be until a shard sends a message about it again.
  bool is_grant = true;
  std::uint32_t number = 0;  ///< Number of the grant.
  time_point at{};           ///< When it was made; the shard's clock may have been read earlier.
  grant offer{};             ///< For a release only the model is set.
};

/// A message from the rank to all shards.
struct pool_news {
  pool_view pool{};
  duration wake_margin{-1};  ///< Lateness of the rank's timers; below 0: unknown.
  /// When a device should be free, as known then: `distant_past` if one is, or `never`.
  time_point next_free = distant_past;
};

/// All memory shared by some shards and one rank: a mailbox for each model with its latest message,
/// the set of mailboxes with news, a queue of grants for each shard, and the rank's measurements.
/// Everything is allocated when it is made. No thread waits for another. Thread safety: one thread
/// for each shard and one for the rank; each uses its own side.
class exchange {
 public:
  /// @param shards Number of shards; at least 1. @param models Bound on model ids; at least 1.
  /// @throws config_error If one of them is 0.
  exchange(std::uint32_t shards, std::uint32_t models)
      : models_{models}, words_{std::make_unique<latest_value<model_word>[]>(models)} {
    expects(shards > 0, "exchange: shards must be at least 1");
    expects(models > 0, "exchange: models must be at least 1");
    for (std::uint32_t i = 0; i < shards; ++i) sides_.push_back(std::make_unique<side>(models));
  }

  [[nodiscard]] std::uint32_t shards() const noexcept {
    return static_cast<std::uint32_t>(sides_.size());
  }
  [[nodiscard]] std::uint32_t models() const noexcept { return models_; }

  /// @name A shard's side
  /// @{
  void say(model_id id, const model_word& word) noexcept {
    words_[id.index()].store(word);
    sides_[word.shard]->news.mark(id.value());
  }
  bool take_mail(std::uint32_t shard, rank_mail& mail) noexcept {
    return sides_[shard]->mail.pop(mail);
  }
  bool take_measured(std::uint32_t shard, batch_time& t) noexcept {
    return sides_[shard]->measured.pop(t);
  }
  /// Whether there is mail; measurements do not count.
  [[nodiscard]] bool has_mail(std::uint32_t shard) const noexcept {
    return !sides_[shard]->mail.empty();
  }
  [[nodiscard]] const latest_value<pool_news>& news() const noexcept { return pool_; }
  /// @}

  /// @name The rank's side
  /// @{
  /// Calls `f(model_id)` for each model with a new message.
  template <class F>
  bool take_news(F&& f) noexcept {
    bool any = false;
    for (auto& s : sides_) any |= s->news.take_all([&](std::uint32_t id) { f(model_id{id}); });
    return any;
  }
  [[nodiscard]] bool has_news() const noexcept {
    for (const auto& s : sides_) {
      if (s->news.any()) return true;
    }
    return false;
  }
  [[nodiscard]] model_word word(model_id id) const noexcept { return words_[id.index()].load(); }
  /// There is always room for one grant and one release per model.
  void send(std::uint32_t shard, const rank_mail& mail) noexcept {
    [[maybe_unused]] const bool fits = sides_[shard]->mail.push(mail);
    COHORT_ASSERT(fits);
  }
  /// Reports the time of an ended batch. If a shard does not keep up, some samples are lost.
  void send_measured(std::uint32_t shard, const batch_time& t) noexcept {
    sides_[shard]->measured.push(t);
  }
  void tell(const pool_news& news) noexcept { pool_.store(news); }
  /// @}

 private:
  struct side {
    explicit side(std::uint32_t models) : news{models}, mail{2 * std::size_t{models}} {}

    dirty_set news;
    ring<rank_mail> mail;
    ring<batch_time> measured{1024};
  };

  std::uint32_t models_;
  std::unique_ptr<latest_value<model_word>[]> words_;
  std::vector<std::unique_ptr<side>> sides_;
  latest_value<pool_news> pool_;
};

}  // namespace cohort::deferred
