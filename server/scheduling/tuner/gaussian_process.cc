#include "server/scheduling/tuner/gaussian_process.h"

#include <cmath>
#include <numbers>

#include "common/check.h"

namespace gradbus::scheduling {
namespace {

double correlation(KernelKind kind, double squared_distance) {
  if (kind == KernelKind::kRbf) return std::exp(-squared_distance / 2);
  const double d = std::sqrt(5 * squared_distance);
  return (1 + d + d * d / 3) * std::exp(-d);
}

// Of the population, as scikit-learn's; 1 for equal values.
double deviation_of(const Eigen::VectorXd& values, double mean) {
  const double variance = (values.array() - mean).square().mean();
  return variance > 0 ? std::sqrt(variance) : 1;
}

}  // namespace

GaussianProcess::GaussianProcess(Kernel kernel, Eigen::MatrixXd points,
                                 const Eigen::VectorXd& values)
    : kernel_(std::move(kernel)), points_(std::move(points)) {
  GRADBUS_CHECK(points_.rows() > 0 && points_.rows() == values.size());
  GRADBUS_CHECK(points_.cols() == static_cast<Eigen::Index>(kernel_.lengths.size()));
  for (Eigen::Index column = 0; column < points_.cols(); ++column)
    points_.col(column) /= kernel_.lengths[static_cast<size_t>(column)];
  mean_ = values.mean();
  scale_ = deviation_of(values, mean_);
  values_ = (values.array() - mean_) / scale_;
  Eigen::MatrixXd covariance(points_.rows(), points_.rows());
  for (Eigen::Index i = 0; i < points_.rows(); ++i)
    for (Eigen::Index j = 0; j < points_.rows(); ++j)
      covariance(i, j) = correlation(kernel_.kind, (points_.row(i) - points_.row(j)).squaredNorm());
  covariance.diagonal().array() += kernel_.noise;
  covariance_.compute(covariance);
  weights_ = covariance_.solve(values_);
}

Eigen::VectorXd GaussianProcess::covariances(const Eigen::VectorXd& point) const {
  Eigen::VectorXd scaled = point;
  for (Eigen::Index i = 0; i < scaled.size(); ++i)
    scaled(i) /= kernel_.lengths[static_cast<size_t>(i)];
  Eigen::VectorXd result(points_.rows());
  for (Eigen::Index i = 0; i < result.size(); ++i)
    result(i) = correlation(kernel_.kind, (points_.row(i).transpose() - scaled).squaredNorm());
  return result;
}

Posterior GaussianProcess::at(const Eigen::VectorXd& point) const {
  const Eigen::VectorXd near = covariances(point);
  const Eigen::VectorXd solved = covariance_.matrixL().solve(near);
  const double variance = std::max(0.0, 1 - solved.squaredNorm());
  return {near.dot(weights_) * scale_ + mean_, std::sqrt(variance) * scale_};
}

double GaussianProcess::log_marginal_likelihood() const {
  const Eigen::MatrixXd lower = covariance_.matrixL();
  const double half_log_determinant = lower.diagonal().array().log().sum();
  const auto count = static_cast<double>(values_.size());
  return -0.5 * values_.dot(weights_) - half_log_determinant -
         0.5 * count * std::log(2 * std::numbers::pi);
}

}  // namespace gradbus::scheduling
