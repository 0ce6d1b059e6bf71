// SPDX-License-Identifier: Apache-2.0
/// @file
/// The HTTP content codings that the servers support: gzip and deflate. Bodies are compressed and
/// decompressed in steps, so that a long one does not delay others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "growing_bytes.hpp"

struct z_stream_s;

namespace cohort::serve {

enum class content_coding : std::uint8_t { identity, gzip, deflate };

/// The coding that a `Content-Encoding` field names; nothing if it is unknown, or a list.
[[nodiscard]] std::optional<content_coding> coding_named(std::string_view field);
[[nodiscard]] std::string_view name_of(content_coding coding);

struct preferred_coding {
  content_coding coding = content_coding::identity;
  bool is_required = false;  ///< The client refuses uncompressed bodies.
};
/// The coding that a client prefers for an answer, by its `Accept-Encoding` fields joined by
/// commas. `identity` if it accepts none of the others.
[[nodiscard]] preferred_coding coding_preferred(std::string_view accept);

/// State of zlib, with the function that frees it.
using zlib_stream = std::unique_ptr<z_stream_s, void (*)(z_stream_s*)>;

/// Decompresses the body of one request while it arrives.
class decompressor {
 public:
  enum class result : std::uint8_t {
    needs_input,  ///< All of the input is used up.
    has_more,     ///< The step has reached its bound: call again, without new input.
    failed,       ///< The step has reached its limit: call again, without new input.
    ended,        ///< `why` returns the reason.
  };
  /// @param coding Not `identity`. @param limit Largest decompressed size, in bytes.
  decompressor(content_coding coding, std::size_t limit);

  /// Decompresses `input`, about 64 KiB of output at most, and removes the bytes used from its
  /// front.
  /// @param is_last Whether nothing follows `input`.
  [[nodiscard]] result step(std::string_view& input, bool is_last);
  /// Status and message of the refusal: 413 if the body is over the limit, else 400.
  [[nodiscard]] const std::pair<int, std::string>& why() const noexcept { return why_; }
  /// Bytes of memory in use.
  [[nodiscard]] std::size_t held() const noexcept;
  [[nodiscard]] growing_bytes take_body() noexcept { return std::move(body_); }

 private:
  result fail(int status, std::string message);
  result inflate_some();
  bool begin(std::string_view input);

  content_coding coding_;
  std::size_t limit_;
  zlib_stream stream_;
  growing_bytes body_;
  std::pair<int, std::string> why_;
  bool has_begun_ = false;
  bool is_at_end_ = false;  // Of a gzip member; another one may follow.
};

/// Compresses the body of one answer, at the fastest level.
class compressor {
 public:
  static constexpr std::size_t memory = std::size_t{136} << 10U;  ///< Bytes that it takes.
  /// @param coding Not `identity`.
  explicit compressor(content_coding coding);

  /// Compresses `bytes` and appends all of the result to `out`.
  void append(std::string_view bytes, bool is_last, std::string& out);

 private:
  zlib_stream stream_;
};

}  // namespace cohort::serve
