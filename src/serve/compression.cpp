// SPDX-License-Identifier: Apache-2.0
#include "compression.hpp"

#include <cohort/serve/http.hpp>

#include <fmt/format.h>

#include <zlib.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <new>

namespace cohort::serve {
namespace {

/// Bytes that zlib writes at one time.
constexpr std::size_t buffer_size = std::size_t{16} << 10U;
/// Memory of one `inflate`: its state and a window of 32 KiB.
constexpr std::size_t inflate_memory = std::size_t{40} << 10U;
// zlib's window sizes: 32 KiB to decompress anything. Less to compress, as each connection with a
// long answer holds it; at the fastest level that costs almost nothing.
constexpr int largest_window = 15;
constexpr int own_window = 14;
constexpr int own_memory_level = 7;
constexpr int as_gzip = 16;
constexpr char gzip_begins = '\x1f';

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_same_word(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, lower, lower);
}
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blank = " \t";
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(blank)));
  return text.substr(0, text.find_last_not_of(blank) + 1);
}
/// Removes and returns the text before the first `by`.
std::string_view next_part(std::string_view& text, char by) {
  const std::size_t end = std::min(text.size(), text.find(by));
  const std::string_view part = trimmed(text.substr(0, end));
  text.remove_prefix(std::min(text.size(), end + 1));
  return part;
}
/// The quality in parameters, 0 to 1; nothing if it is not valid.
std::optional<double> quality_of(std::string_view parameters) {
  double quality = 1;
  while (!parameters.empty()) {
    std::string_view value = next_part(parameters, ';');
    if (!is_same_word(next_part(value, '='), "q")) continue;
    const char* const begin = value.data();
    const char* const end = begin + value.size();
    const auto [at, error] = std::from_chars(begin, end, quality);
    if (error != std::errc{} || at != end || !(quality >= 0 && quality <= 1)) return std::nullopt;
  }
  return quality;
}

zlib_stream checked(zlib_stream stream, int error) {
  if (error != Z_OK) throw std::bad_alloc{};  // No other error is possible with constant settings.
  return stream;
}
zlib_stream inflating(int window) {
  zlib_stream s{new z_stream{}, [](z_stream* z) {
                  inflateEnd(z);
                  delete z;
                }};
  const int error = inflateInit2(s.get(), window);
  return checked(std::move(s), error);
}
zlib_stream deflating(int window) {
  zlib_stream s{new z_stream{}, [](z_stream* z) {
                  deflateEnd(z);
                  delete z;
                }};
  const int error =
      deflateInit2(s.get(), Z_BEST_SPEED, Z_DEFLATED, window, own_memory_level, Z_DEFAULT_STRATEGY);
  return checked(std::move(s), error);
}
void set_input(z_stream& z, std::string_view bytes) {
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // zlib only reads them.
  z.avail_in = static_cast<uInt>(bytes.size());
}
void set_output(z_stream& z, std::array<char, buffer_size>& buffer, std::size_t most) {
  z.next_out = reinterpret_cast<Bytef*>(buffer.data());
  z.avail_out = static_cast<uInt>(std::min(most, buffer.size()));
}
/// The bytes written to the buffer since `set_output`.
std::string_view output_of(const z_stream& z, const std::array<char, buffer_size>& buffer) {
  return {buffer.data(),
          static_cast<std::size_t>(reinterpret_cast<const char*>(z.next_out) - buffer.data())};
}

}  // namespace

std::optional<content_coding> coding_named(std::string_view field) {
  if (is_same_word(field, "identity")) return content_coding::identity;
  if (is_same_word(field, "gzip") || is_same_word(field, "x-gzip")) return content_coding::gzip;
  if (is_same_word(field, "deflate")) return content_coding::deflate;
  return std::nullopt;
}

std::string_view name_of(content_coding coding) {
  return coding == content_coding::gzip      ? "gzip"
         : coding == content_coding::deflate ? "deflate"
                                             : "identity";
}

preferred_coding coding_preferred(std::string_view accept) {
  std::array<std::optional<double>, 3> named;  // By coding.
  std::optional<double> others;                // Quality of codings not named: *.
  while (!accept.empty()) {
    std::string_view parameters = next_part(accept, ',');
    const std::string_view name = next_part(parameters, ';');
    const std::optional<double> quality = quality_of(parameters);
    if (!quality) continue;
    if (name == "*") others = quality;
    if (const auto coding = coding_named(name)) named[static_cast<std::size_t>(*coding)] = quality;
  }
  const double gzip = named[1].value_or(others.value_or(0));
  const double deflate = named[2].value_or(others.value_or(0));
  const double best = std::max(gzip, deflate);
  if (best == 0 || named[0].value_or(0) > best) return {};
  return {.coding = gzip >= deflate ? content_coding::gzip : content_coding::deflate,
          .is_required = named[0].value_or(others.value_or(1)) == 0};
}

decompressor::decompressor(content_coding coding, std::size_t limit)
    : coding_{coding},
      limit_{limit},
      stream_{
          inflating(coding == content_coding::gzip ? largest_window + as_gzip : largest_window)} {}

std::size_t decompressor::held() const noexcept { return inflate_memory + body_.capacity(); }

decompressor::result decompressor::fail(int status, std::string message) {
  why_ = {status, std::move(message)};
  return result::failed;
}

/// Checks the first bytes, as some clients send deflate without zlib's header.
/// @returns Whether there are enough of them.
bool decompressor::begin(std::string_view input) {
  if (coding_ == content_coding::deflate) {
    if (input.size() < 2) return false;
    const auto first = static_cast<unsigned char>(input[0]);
    const auto second = static_cast<unsigned char>(input[1]);
    const bool has_header =
        (first & 0xFU) == Z_DEFLATED && (first * 256U + second) % 31U == 0;  // RFC 1950, 2.2.
    if (!has_header) inflateReset2(stream_.get(), -largest_window);
  }
  has_begun_ = !input.empty();
  return has_begun_;
}

decompressor::result decompressor::step(std::string_view& input, bool is_last) {
  set_input(*stream_, input);
  const result r = has_begun_ || begin(input) ? inflate_some() : result::needs_input;
  input.remove_prefix(input.size() - stream_->avail_in);
  if (r != result::needs_input || !is_last) return r;
  // A request without any body has nothing to decompress.
  if (is_at_end_ || (!has_begun_ && input.empty())) return result::ended;
  return fail(400, fmt::format("the {} body ends too early", name_of(coding_)));
}

decompressor::result decompressor::inflate_some() {
  z_stream& z = *stream_;
  std::array<char, buffer_size> buffer;
  // One byte beyond the limit shows that there are more.
  const std::size_t most = body_.size() + std::min(http_piece, limit_ - body_.size()) + 1;
  for (;;) {
    if (is_at_end_) {
      if (z.avail_in == 0) return result::needs_input;
      if (coding_ != content_coding::gzip || static_cast<char>(*z.next_in) != gzip_begins) {
        return fail(400, fmt::format("bytes follow the end of the {} body", name_of(coding_)));
      }
      inflateReset(&z);
      is_at_end_ = false;
    }
    set_output(z, buffer, most - body_.size());
    const int error = inflate(&z, Z_NO_FLUSH);
    if (error == Z_MEM_ERROR) throw std::bad_alloc{};
    if (error != Z_OK && error != Z_STREAM_END && error != Z_BUF_ERROR) {
      return fail(400, fmt::format("the body is not valid {}", name_of(coding_)));
    }
    const std::string_view text = output_of(z, buffer);
    const std::size_t size = body_.size() + text.size();
    if (size > limit_) {
      return fail(413, fmt::format("the decompressed body is over {} bytes", limit_));
    }
    body_.reserve_for(text.size(), limit_);
    body_.append(text);
    is_at_end_ = error == Z_STREAM_END;
    if (is_at_end_) continue;
    if (z.avail_out > 0) return result::needs_input;
    if (size == most) return result::has_more;
  }
}

compressor::compressor(content_coding coding)
    : stream_{deflating(coding == content_coding::gzip ? own_window + as_gzip : own_window)} {}

void compressor::append(std::string_view bytes, bool is_last, std::string& out) {
  std::array<char, buffer_size> buffer;
  set_input(*stream_, bytes);
  do {
    set_output(*stream_, buffer, buffer.size());
    deflate(stream_.get(), is_last ? Z_FINISH : Z_SYNC_FLUSH);  // All output appears at once.
    out += output_of(*stream_, buffer);
  } while (stream_->avail_out == 0);
}

}  // namespace cohort::serve
