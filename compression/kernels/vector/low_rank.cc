#include "compression/kernels/vector/low_rank.h"

#include "compression/kernels/vector/lanes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/vector/low_rank.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::CappedTag<float, kSumLanes>;
static_assert(kTileRows == 4, "the loops name their four rows");

// Lanes [l, l + lanes of F32) of four rows times one vector.
HWY_INLINE void AddLaneProducts(const MatrixTile& tile, const float* q, size_t l, float* lanes) {
  const F32 d;
  auto sum0 = hn::LoadU(d, lanes), sum1 = hn::LoadU(d, lanes + kSumLanes);
  auto sum2 = hn::LoadU(d, lanes + 2 * kSumLanes), sum3 = hn::LoadU(d, lanes + 3 * kSumLanes);
  for (size_t j = l; j < tile.width; j += kSumLanes) {
    const auto factor = hn::LoadU(d, q + j);
    sum0 = hn::Add(sum0, hn::Mul(hn::LoadU(d, tile.rows[0] + j), factor));
    sum1 = hn::Add(sum1, hn::Mul(hn::LoadU(d, tile.rows[1] + j), factor));
    sum2 = hn::Add(sum2, hn::Mul(hn::LoadU(d, tile.rows[2] + j), factor));
    sum3 = hn::Add(sum3, hn::Mul(hn::LoadU(d, tile.rows[3] + j), factor));
  }
  hn::StoreU(sum0, d, lanes);
  hn::StoreU(sum1, d, lanes + kSumLanes);
  hn::StoreU(sum2, d, lanes + 2 * kSumLanes);
  hn::StoreU(sum3, d, lanes + 3 * kSumLanes);
}

void AddRowProducts(const MatrixTile& tile, const float* q, size_t stride, size_t rank,
                    float* lanes) {
  const MatrixTile local = tile;  // a copy that stores to `lanes` cannot change
  for (size_t k = 0; k < rank; ++k)
    for (size_t l = 0; l < kSumLanes; l += hn::Lanes(F32()))
      AddLaneProducts(local, q + k * stride, l, lanes + k * kTileRows * kSumLanes + l);
}

void AddColumnProducts(const MatrixTile& tile, const float* p, float* q, size_t stride,
                       size_t rank) {
  const F32 d;
  const MatrixTile local = tile;
  for (size_t k = 0; k < rank; ++k) {
    const auto p0 = hn::Set(d, p[k * kTileRows]), p1 = hn::Set(d, p[k * kTileRows + 1]);
    const auto p2 = hn::Set(d, p[k * kTileRows + 2]), p3 = hn::Set(d, p[k * kTileRows + 3]);
    float* to = q + k * stride;
    for (size_t j = 0; j < local.width; j += hn::Lanes(d)) {
      auto sum = hn::Add(hn::LoadU(d, to + j), hn::Mul(p0, hn::LoadU(d, local.rows[0] + j)));
      sum = hn::Add(sum, hn::Mul(p1, hn::LoadU(d, local.rows[1] + j)));
      sum = hn::Add(sum, hn::Mul(p2, hn::LoadU(d, local.rows[2] + j)));
      sum = hn::Add(sum, hn::Mul(p3, hn::LoadU(d, local.rows[3] + j)));
      hn::StoreU(sum, d, to + j);
    }
  }
}

void MultiplyOut(const float* p, const float* q, size_t stride, size_t rank, size_t width,
                 float* product) {
  const F32 d;
  for (size_t j = 0; j < width; j += hn::Lanes(d)) {
    auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
    for (size_t k = 0; k < rank; ++k) {
      const auto factor = hn::LoadU(d, q + k * stride + j);
      sum0 = hn::Add(sum0, hn::Mul(hn::Set(d, p[k * kTileRows]), factor));
      sum1 = hn::Add(sum1, hn::Mul(hn::Set(d, p[k * kTileRows + 1]), factor));
      sum2 = hn::Add(sum2, hn::Mul(hn::Set(d, p[k * kTileRows + 2]), factor));
      sum3 = hn::Add(sum3, hn::Mul(hn::Set(d, p[k * kTileRows + 3]), factor));
    }
    hn::StoreU(sum0, d, product + j);
    hn::StoreU(sum1, d, product + kTileColumns + j);
    hn::StoreU(sum2, d, product + 2 * kTileColumns + j);
    hn::StoreU(sum3, d, product + 3 * kTileColumns + j);
  }
}

void SubtractScaled(float factor, const float* x, size_t count, float* y) {
  const F32 d;
  const auto by = hn::Set(d, factor);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d))
    hn::StoreU(hn::Sub(hn::LoadU(d, y + i), hn::Mul(by, hn::LoadU(d, x + i))), d, y + i);
  subtract_scaled_scalar(factor, x + i, count - i, y + i);
}

void KeepLacking(const float* v, const float* sent, size_t count, float* residual) {
  const F32 d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto lacking = hn::Sub(hn::LoadU(d, v + i), hn::LoadU(d, sent + i));
    const auto before = hn::LoadU(d, residual + i);
    hn::StoreU(hn::IfThenElse(hn::IsFinite(lacking), lacking, before), d, residual + i);
  }
  keep_lacking_scalar(v + i, sent + i, count - i, residual + i);
}

void PutScaled(float factor, const float* from, size_t count, float* to) {
  const F32 d;
  const auto by = hn::Set(d, factor);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d))
    hn::StoreU(hn::Mul(by, hn::LoadU(d, from + i)), d, to + i);
  put_scaled_scalar(factor, from + i, count - i, to + i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(AddRowProducts);
HWY_EXPORT(AddColumnProducts);
HWY_EXPORT(MultiplyOut);
HWY_EXPORT(SubtractScaled);
HWY_EXPORT(KeepLacking);
HWY_EXPORT(PutScaled);

void add_row_products(const MatrixTile& tile, const float* q, size_t stride, size_t rank,
                      float* lanes) {
  HWY_DYNAMIC_DISPATCH(AddRowProducts)(tile, q, stride, rank, lanes);
}
void add_column_products(const MatrixTile& tile, const float* p, float* q, size_t stride,
                         size_t rank) {
  HWY_DYNAMIC_DISPATCH(AddColumnProducts)(tile, p, q, stride, rank);
}
void multiply_out(const float* p, const float* q, size_t stride, size_t rank, size_t width,
                  float* product) {
  HWY_DYNAMIC_DISPATCH(MultiplyOut)(p, q, stride, rank, width, product);
}
void subtract_scaled(float factor, const float* x, size_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(SubtractScaled)(factor, x, count, y);
}
void keep_lacking(const float* v, const float* sent, size_t count, float* residual) {
  HWY_DYNAMIC_DISPATCH(KeepLacking)(v, sent, count, residual);
}
void put_scaled(float factor, const float* from, size_t count, float* to) {
  HWY_DYNAMIC_DISPATCH(PutScaled)(factor, from, count, to);
}

}  // namespace gradbus
#endif
