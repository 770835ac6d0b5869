package report

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   Sample
		want float64
	}{{Sample{3, 1, 2}, 2}, {Sample{4, 1, 3, 2}, 2.5}, {Sample{7}, 7}} {
		if got := c.in.Median(); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.in, got, c.want)
		}
	}
}

func TestSlope(t *testing.T) {
	x := []float64{100, 1000, 10000, 100000}
	t.Run("of a power is its exponent, without doubt", func(t *testing.T) {
		y := make([]float64, len(x))
		for i := range x {
			y[i] = 3 * math.Pow(x[i], 0.7)
		}
		slope, half := Slope(x, y)
		if math.Abs(slope-0.7) > 1e-9 || half > 1e-6 {
			t.Errorf("slope %v ± %v, want 0.7 ± 0", slope, half)
		}
	})
	// Checked by hand: logarithms to base 10 of x are 2..5, those of y 0, 1, 1, 2. The slope is
	// 0.6, the residuals' squares sum to 0.2, so its standard error is sqrt(0.2/2/5) = 0.1414, and
	// t with 2 degrees of freedom is 4.303.
	t.Run("of scattered points has the textbook's interval", func(t *testing.T) {
		slope, half := Slope(x, []float64{1, 10, 10, 100})
		if math.Abs(slope-0.6) > 1e-9 || math.Abs(half-0.6085) > 1e-3 {
			t.Errorf("slope %v ± %v, want 0.6 ± 0.6085", slope, half)
		}
	})
}
